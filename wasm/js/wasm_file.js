import { LeaseholdError } from "./error.js";

/** One of the package's wasm files, with the JavaScript that wasm-bindgen has written for it. */
export class WasmFile {
    #name;
    #bindings;
    /** Stands for the exports of the file until it is loaded. */
    #absent;
    #isLoaded = false;
    #loading;

    /** `bindings` is the module `pkg/NAME.js`. A call into it throws `NOT_LOADED` until the file is loaded. */
    constructor(name, bindings) {
        this.#name = name;
        this.#bindings = bindings;
        const advice = "await `init`, or import the entry without `slim`, which needs no call";
        const refuse = () => {
            throw new LeaseholdError("NOT_LOADED", `${this.#title} is not loaded: ${advice}`);
        };
        this.#absent = new Proxy({}, { get: refuse });
        bindings.__wbg_set_wasm(this.#absent);
    }

    /** Loads the file from its bytes or a compiled module, within this call. */
    loadSync(source) {
        if (this.#isLoaded) return;
        if (!isModule(source) && !isBytes(source)) throw invalidSource("its bytes or a compiled module");
        try {
            const module = isModule(source) ? source : new WebAssembly.Module(source);
            this.#start(new WebAssembly.Instance(module, this.#importsFor(module)));
        } catch (error) {
            throw this.#failure(error);
        }
    }

    /** Loads the file from its bytes, its URL or a compiled module. A call waits for earlier ones, and loads if they have failed. */
    async load(source) {
        const earlier = this.#loading;
        this.#loading = Promise.allSettled([earlier]).then(() => this.#load(source));
        await this.#loading;
    }

    async #load(source) {
        if (this.#isLoaded) return;
        const isKnown = isModule(source) || isBytes(source) || isAddress(source);
        if (!isKnown) throw invalidSource("its bytes, its URL or a compiled module");
        try {
            const module = await compile(source);
            // Chrome before 115 instantiates a file of this size in an asynchronous call only.
            this.#start(await WebAssembly.instantiate(module, this.#importsFor(module)));
        } catch (error) {
            throw this.#failure(error);
        }
    }

    #start({ exports }) {
        // Another call of the program may have loaded the file meanwhile, and objects exist in its memory.
        if (this.#isLoaded) return;
        try {
            this.#bindings.__wbg_set_wasm(exports);
            exports.__wbindgen_start();
            this.#isLoaded = true;
        } finally {
            if (!this.#isLoaded) this.#bindings.__wbg_set_wasm(this.#absent);
        }
    }

    #failure(cause) {
        const message = `${this.#title} cannot be loaded: ${cause.message.replace(/\.$/u, "")}${adviceFor(cause)}`;
        return Object.assign(new LeaseholdError("NOT_LOADED", message), { cause });
    }

    /** wasm-bindgen names each function after a hash of its type, so another version has other names. */
    #importsFor(module) {
        const own = `./${this.#name}_bg.js`;
        const isOurs = ({ module, name }) => module === own && name in this.#bindings;
        const canStart = WebAssembly.Module.exports(module).some(({ name }) => name === "__wbindgen_start");
        if (!canStart || !WebAssembly.Module.imports(module).every(isOurs)) throw new Error("it is not the file of this version");
        return { [own]: this.#bindings };
    }

    get #title() {
        return `the wasm file \`${this.#name}.wasm\``;
    }
}

async function compile(source) {
    if (isModule(source)) return source;
    if (isBytes(source)) return await WebAssembly.compile(source);
    // Node fetches no file, and browsers have no `node:fs`, of which bundlers must see no import.
    const fs = String(source).startsWith("file:") && globalThis.process?.getBuiltinModule?.("node:fs/promises");
    if (fs) return await WebAssembly.compile(await fs.readFile(new URL(source)));
    const response = await fetch(source);
    if (!response.ok) throw new Error(`\`${source}\` answers with the status ${response.status}`);
    // Browsers keep the code that they compile from a stream, but they refuse a stream of another type.
    const isTyped = response.headers.get("content-type") === "application/wasm";
    return isTyped ? await WebAssembly.compileStreaming(response) : await WebAssembly.compile(await response.arrayBuffer());
}

function adviceFor({ message }) {
    if (!/unsafe-eval|content security policy/iu.test(message)) return "";
    return "; allow `'wasm-unsafe-eval'` in `script-src` of the page's Content-Security-Policy";
}

function invalidSource(need) {
    return new LeaseholdError("INVALID_ARGUMENT", `\`source\` is not the wasm file: pass ${need}`);
}

function isModule(source) {
    return source instanceof WebAssembly.Module;
}

function isBytes(source) {
    return source instanceof ArrayBuffer || ArrayBuffer.isView(source);
}

function isAddress(source) {
    return typeof source === "string" || source instanceof URL;
}
