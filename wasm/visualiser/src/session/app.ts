import { Search } from "./search";
import { Session } from "./session";

/** The page's one search. */
export const search = new Search();
/** The page's one session. */
export const session = new Session(search);
