/** What every call of the package throws. */
export class LeaseholdError extends Error {
    constructor(code, message, details = []) {
        super(message);
        this.name = "LeaseholdError";
        this.code = code;
        this.details = details;
    }
}
