/**
 * The error that every function and method of the package throws on failure. `error.d.ts` declares
 * its types.
 */
export class LeaseholdError extends Error {
    constructor(code, message, details = []) {
        super(message);
        this.name = "LeaseholdError";
        this.code = code;
        this.details = details;
    }
}
