import { defineConfig } from "vitest/config";

export default defineConfig({
    // Relative URLs, so that the page can be served from any path.
    base: "./",
    build: {
        // The package awaits its wasm file at the top level of a module, which ES2022 added.
        target: "es2022",
        // Vite would inline small assets as `data:` URLs, which the page's content security policy
        // forbids.
        assetsInlineLimit: 0,
    },
    worker: { format: "es" },
    preview: { host: "127.0.0.1" },
    test: { include: ["tests/**/*.test.ts"] },
});
