// Wraps the exports of a wasm file. The arguments of a call are checked before it, and every failure is a
// `LeaseholdError`, also a trap.
import { checked, invalidArgument } from "./arguments.js";
import { LeaseholdError } from "./error.js";

/** Returns a function that checks its arguments before it calls the engine. */
export function guardFunction(name, call, signature) {
    return named(name, (...values) => {
        const given = checked(signature, values);
        return attempt(() => call(...given));
    });
}

/**
 * Returns a class that checks the arguments of each call before it calls an object of the wasm class.
 * `create` and `methods` have the signatures of the constructor and of methods. `factories` are the static
 * methods that return an object: each has a signature, and a function that explains an error.
 */
export function guardClass(name, Wasm, { create, factories = {}, methods, getters = [] }) {
    const handles = new Handles(name);
    // A function, since a call of a class without `new` runs no code: the message would have the name `Guarded`.
    const Guarded = function (...values) {
        if (!new.target) throw invalidArgument(`\`${name}\` is called without \`new\`: write \`new ${name}(…)\``);
        const given = checked(create, values);
        handles.add(this, () => new Wasm(...given));
    };
    Object.defineProperty(Guarded, "prototype", { writable: false });
    for (const [factory, { signature, explain }] of Object.entries(factories)) {
        define(Guarded, factory, (...values) => {
            const given = checked(signature, values);
            try {
                return handles.add(Object.create(Guarded.prototype), () => Wasm[factory](...given));
            } catch (error) {
                throw explain(error, ...given);
            }
        });
    }
    for (const [method, signature] of Object.entries(methods)) {
        define(Guarded.prototype, method, function (...values) {
            const handle = handles.live(this, method);
            const given = checked(signature, values);
            return handle.call((object) => object[method](...given));
        });
    }
    for (const getter of getters) {
        const get = function () {
            return handles.live(this, getter).call((object) => object[getter]);
        };
        Object.defineProperty(Guarded.prototype, getter, { get, configurable: true });
    }
    const free = function () {
        handles.free(this);
    };
    define(Guarded.prototype, "free", free);
    if (Symbol.dispose) define(Guarded.prototype, Symbol.dispose, free);
    return named(name, Guarded);
}

/** The objects of one class, with their objects in the wasm file. */
class Handles {
    #className;
    #handles = new WeakMap();

    constructor(className) {
        this.#className = className;
    }

    /** Notes the wasm object that `create` returns for an object, and returns the latter. */
    add(owner, create) {
        this.#handles.set(owner, new Handle(attempt(create)));
        return owner;
    }

    /** Returns the handle of an object that can be called. `member` is the called method or getter. */
    live(owner, member) {
        const handle = this.#of(owner, member);
        if (handle.isBroken) throw new LeaseholdError("PANIC", `this \`${this.#className}\` can't be used any longer, because a call stopped in its middle: free it and create another one`);
        if (handle.isFreed) throw new LeaseholdError("CLOSED", `this \`${this.#className}\` is freed: create another one`);
        return handle;
    }

    free(owner) {
        this.#of(owner, "free").free();
    }

    #of(owner, member) {
        const handle = this.#handles.get(owner);
        if (handle) return handle;
        throw invalidArgument(`\`${String(member)}\` is called without its \`${this.#className}\`: call it as a method of one`);
    }
}

/** The tie of an object to its object in the wasm file. */
class Handle {
    #object;
    isBroken = false;

    constructor(object) {
        this.#object = object;
    }

    get isFreed() {
        return this.#object === undefined;
    }

    /** Calls a function with the wasm object. */
    call(use) {
        try {
            return use(this.#object);
        } catch (error) {
            if (isTrap(error)) this.#breakOff();
            throw errorOf(error);
        }
    }

    free() {
        const object = this.#object;
        this.#object = undefined;
        if (object) attempt(() => object.free());
    }

    /**
     * Gives the wasm object up. A trap runs no destructor, so the object stays locked in the wasm file, and
     * its own `free` would throw. Its memory is lost until the wasm file is loaded anew.
     */
    #breakOff() {
        this.isBroken = true;
        this.#object.__destroy_into_raw();
        this.#object = undefined;
    }
}

/** Returns the result of a call of the engine. Throws every failure as a `LeaseholdError`. */
function attempt(call) {
    try {
        return call();
    } catch (error) {
        throw errorOf(error);
    }
}

/** Returns true for an exception that has left the wasm file in the middle of its code. */
function isTrap(error) {
    return !(error instanceof LeaseholdError) || error.code === "PANIC";
}

/** Returns an error of the engine with the names of the arguments: the engine has those of the wire, `create_records`. */
function inCallersWords(error) {
    error.message = error.message.replaceAll(/\b(create|destroy)_records\b/gu, "$1s");
    return error;
}

function errorOf(error) {
    if (error instanceof LeaseholdError) return inCallersWords(error);
    const message = `the engine stopped in the middle of a call: memory ran out, or it has a defect, which please report: ${error}`;
    return Object.assign(new LeaseholdError("PANIC", message), { cause: error });
}

/** Adds a method, which `for` loops over the members leave out like those of other classes. */
function define(target, name, value) {
    Object.defineProperty(target, name, { value: typeof name === "string" ? named(name, value) : value, writable: true, configurable: true });
}

/** Gives a function or a class its name, which minifiers change. */
function named(name, value) {
    return Object.defineProperty(value, "name", { value: name, configurable: true });
}
