import { defineConfig } from "vitest/config";

export default defineConfig({
    // So that it can be served from any path.
    base: "./",
    build: {
        // The wasm file is awaited at the top of a module.
        target: "es2022",
        // A content security policy without data: URLs is simpler to read.
        assetsInlineLimit: 0,
    },
    worker: { format: "es" },
    preview: { host: "127.0.0.1" },
    test: { include: ["tests/**/*.test.ts"] },
});
