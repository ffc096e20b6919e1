// `npm pack` refuses a package that is not built.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";

it("npm pack before the build fails, makes no file, and says what to run", (test) => {
    const source = fileURLToPath(new URL("../../", import.meta.url));
    const copy = mkdtempSync(join(tmpdir(), "leasehold-pack-"));
    test.after(() => rmSync(copy, { recursive: true }));
    for (const part of ["package.json", "js", "tools"]) cpSync(join(source, part), join(copy, part), { recursive: true });
    const pack = () => spawnSync("npm", ["pack", "--silent"], { cwd: copy, encoding: "utf8" });
    const { status, stderr } = pack();
    assert.notEqual(status, 0);
    assert.match(stderr, /the package is not built: .*: run `cargo xtask web`/u);
    assert.deepEqual(readdirSync(copy).filter((file) => file.endsWith(".tgz")), []);
    cpSync(join(source, "pkg"), join(copy, "pkg"), { recursive: true });
    assert.equal(pack().status, 0);
});
