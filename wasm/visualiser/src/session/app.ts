import { Search } from "./search";
import { Session } from "./session";

/** The search for violations that the whole page shares. */
export const search = new Search();
/** The session that the whole page shares. */
export const session = new Session(search);
