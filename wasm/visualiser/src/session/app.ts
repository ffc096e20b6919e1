import { Search } from "./search";
import { Session } from "./session";
import { Tour } from "./tour";

/** The search for violations that the whole page shares. */
export const search = new Search();
/** The session that the whole page shares. */
export const session = new Session(search);
/** The guided tour of the page. */
export const tour = new Tour(session, () => matchMedia("(prefers-reduced-motion: reduce)").matches);
