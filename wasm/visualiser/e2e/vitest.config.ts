import { defineConfig } from "vitest/config";

export default defineConfig({
    test: {
        include: ["e2e/**/*.test.ts"],
        testTimeout: 60_000,
        hookTimeout: 60_000,
        // One browser at a time: a page that is measured shares the machine with nothing else of these tests.
        fileParallelism: false,
    },
});
