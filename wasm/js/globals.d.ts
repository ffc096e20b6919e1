// Types of the platform, as far as the program that imports the package has them: from the library
// `dom` or from `@types/node`. A type that the program lacks is `never`, so that no import fails.

type Instance<Name extends string> = typeof globalThis extends { [name in Name]: { prototype: infer Found } } ? Found : never;

/** A `URL`. */
export type WebAddress = Instance<"URL">;

/** An `AbortSignal`. */
export type Signal = Instance<"AbortSignal">;

/** A `WebAssembly.Module`. */
export type WasmModule = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Found } } } ? Found : never;

/** The bytes of a file. */
export type WasmBytes = ArrayBuffer | ArrayBufferView;
