import type { Rule } from "../model/protocol";
import { quotedRule } from "../model/texts";
import { search, session } from "../session/app";
import { pane, tab } from "./navigation";

/**
 * Searches a rule's small world for a violation, with the rule off or on. Shows the search, and
 * opens the run that it finds.
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
