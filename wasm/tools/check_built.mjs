// Refuses to pack the package before its files are built. npm packs what is there, and says nothing of
// what is missing.
import { existsSync, readFileSync } from "node:fs";

/** Returns the paths at the leaves of an entry of `exports`. */
function paths(entry) {
    return typeof entry === "string" ? [entry] : Object.values(entry).flatMap(paths);
}

/** The built files that the modules of `js` load. */
const LOADED = ["./pkg/leasehold.js", "./pkg/leasehold.d.ts", "./pkg/simulation.js", "./pkg/simulation.d.ts"];

const root = new URL("../", import.meta.url);
const { exports } = JSON.parse(readFileSync(new URL("package.json", root), "utf8"));
const missing = [...paths(exports), ...LOADED].filter((path) => !existsSync(new URL(path, root)));
if (missing.length > 0) {
    console.error(`the package is not built: \`${missing[0]}\` is missing: run \`cargo xtask web\`, then pack it again`);
    process.exit(1);
}
