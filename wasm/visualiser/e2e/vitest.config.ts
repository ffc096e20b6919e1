import { defineConfig } from "vitest/config";

export default defineConfig({
    test: {
        include: ["e2e/**/*.test.ts"],
        testTimeout: 60_000,
        hookTimeout: 60_000,
        // The default of `expect.poll` is a second, in which a browser on a loaded machine may show nothing new.
        expect: { poll: { timeout: 20_000 } },
        // Run one browser at a time, because a second one would slow down the page whose speed is
        // measured.
        fileParallelism: false,
    },
});
