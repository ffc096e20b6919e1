/**
 * The member `[Symbol.dispose]`, which frees the object at the end of a `using` declaration. A program
 * whose library of types lacks that symbol has no such member.
 */
export type Disposal = SymbolConstructor extends { readonly dispose: infer Dispose extends symbol }
    ? { [member in Dispose]: () => void }
    : object;
