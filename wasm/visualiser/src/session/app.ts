import { Search } from "./search";
import { Session } from "./session";

/** The only search of the page. */
export const search = new Search();
/** The only session of the page. */
export const session = new Session(search);
