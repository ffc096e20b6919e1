import type { Rule } from "../model/protocol";
import { RULE_NAMES } from "../model/words";
import { search, session } from "../session/app";
import { pane, tab } from "./places";

/** Looks for a violation with a rule off or on, where the search can be watched, and opens what is found. */
export function findViolation(rule: Rule, isOff: boolean): void {
    tab.value = "rules";
    pane.value = "choose";
    search.start(rule, isOff, (trace) => {
        session.openTrace(trace, `Without the rule “${RULE_NAMES[rule].toLowerCase()}”`);
        session.isShortest.value = true;
        pane.value = "run";
    });
}
