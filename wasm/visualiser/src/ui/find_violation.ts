import type { Rule } from "../model/protocol";
import { quotedRule } from "../model/texts";
import { search, session } from "../session/app";
import { pane, tab } from "./navigation";

/**
 * Searches for a violation with a rule off or on, shows the search, and opens the run that it
 * finds.
 */
export function findViolation(rule: Rule, isOff: boolean): void {
    tab.value = "rules";
    pane.value = "choose";
    search.start(rule, isOff, (trace) => {
        session.openTrace(trace, `Without the rule ${quotedRule(rule)}`);
        session.isShortest.value = true;
        pane.value = "run";
    });
}
