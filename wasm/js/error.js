/** The error that every call of the package throws. Its types are in `error.d.ts`. */
export class LeaseholdError extends Error {
    constructor(code, message, details = []) {
        super(message);
        this.name = "LeaseholdError";
        this.code = code;
        this.details = details;
    }
}
