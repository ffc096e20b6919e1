import type { LaneView, RequestView } from "../model/protocol";
import { kindText } from "../model/queue_texts";
import { Status, Table } from "./table";

/** Shows the lanes of the queue, each with the worker that has it. */
export function Lanes({ lanes }: { lanes: LaneView[] }) {
    return (
        <Table caption="Lanes" heads={["sheet", "state", "worker", "fence", "waiting"]} empty="">
            {lanes.map(({ lane, status, holder, fence, waiting }) => (
                <tr key={lane} data-queue-lane={lane}>
                    <th scope="row">{lane}</th>
                    <td>
                        <Status status={status} />
                    </td>
                    <td>{holder === undefined ? "–" : `cell ${holder}`}</td>
                    <td>{fence ?? "–"}</td>
                    <td>{waiting}</td>
                </tr>
            ))}
        </Table>
    );
}

/**
 * The number of latest requests that are shown in addition to the open ones. There can be many
 * settled requests.
 */
const SHOWN_REQUESTS = 12;

/** Shows the requests of the queue in the order of their submits. */
export function Requests({ requests, changed }: { requests: RequestView[]; changed: Set<string> }) {
    const isOpen = ({ status }: RequestView) => status === "New" || status === "InProgress";
    const shown = requests.filter((request, index) => isOpen(request) || index >= requests.length - SHOWN_REQUESTS);
    const caption = shown.length < requests.length ? `Requests (${requests.length}, ${shown.length} shown)` : "Requests";
    return (
        <Table caption={caption} heads={["request", "kind", "sheet", "state", "attempts"]} empty="nothing is submitted">
            {shown.map(({ number, kind, lane, status, attempts, max_attempts }) => (
                <tr key={number} class={changed.has(String(number)) ? "changed" : ""} data-request={number}>
                    <th scope="row">{number}</th>
                    <td>{kindText(kind)}</td>
                    <td>{lane}</td>
                    <td>
                        <Status status={status} />
                    </td>
                    <td class="short">
                        {attempts} of {max_attempts}
                    </td>
                </tr>
            ))}
        </Table>
    );
}
