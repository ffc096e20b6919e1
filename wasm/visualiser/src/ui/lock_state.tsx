import { clientText } from "../model/lock_texts";
import type { CellView, LaneView, LocksView, LockView, SessionView } from "../model/protocol";
import { frontText } from "../model/queue_texts";
import { formatDuration } from "../model/texts";
import { Lanes, Requests } from "./queue_state";
import { Status, Table } from "./table";

/** Shows the sessions of the service with its locks or its queue. */
export function LockState({ locks, changed, isUp }: { locks: LocksView; changed: Set<string>; isUp: boolean }) {
    return (
        <section aria-label="The service's tables">
            <h3>
                The service {!isUp && <b class="tag bad">down</b>}
                {locks.is_paused && <b class="tag bad">paused</b>}
                {locks.ahead_seconds !== 0 && (
                    <span class="tag">
                        wall clock {formatDuration(Math.abs(locks.ahead_seconds) * 1e6)} {locks.ahead_seconds > 0 ? "ahead" : "behind"}
                    </span>
                )}
            </h3>
            {locks.lanes ? <Lanes lanes={locks.lanes} /> : <Locks locks={locks.locks} changed={changed} />}
            {locks.lanes && <Requests requests={locks.requests ?? []} changed={changed} />}
            <Sessions sessions={locks.sessions} changed={changed} />
            <Resources resources={locks.lanes ?? locks.locks} />
        </section>
    );
}

function Locks({ locks, changed }: { locks: LockView[]; changed: Set<string> }) {
    return (
        <Table caption="Locks" heads={["lock", "state", "holder", "fence", "waiting"]} empty="">
            {locks.map(({ lock, status, holder, fence, waiting }) => (
                <tr key={lock} class={changed.has(lock) ? "changed" : ""} data-lock={lock}>
                    <th scope="row">{lock}</th>
                    <td>
                        <Status status={status === "Absent" ? "Free" : status} />
                    </td>
                    <td>{holder === undefined ? "–" : `cell ${holder}`}</td>
                    <td>{fence ?? "–"}</td>
                    <td>{waiting.map((cell) => `cell ${cell}`).join(", ") || "–"}</td>
                </tr>
            ))}
        </Table>
    );
}

function Sessions({ sessions, changed }: { sessions: SessionView[]; changed: Set<string> }) {
    return (
        <Table caption="Sessions" heads={["cell", "number", "state", "silence"]} empty="the service knows of no session">
            {sessions.map(({ session, cell, number, status, silent_ticks, expires_at_ticks }) => (
                <tr key={session} class={changed.has(session) ? "changed" : ""}>
                    <th scope="row">{cell}</th>
                    <td>{number}</td>
                    <td>
                        <Status status={status} />
                    </td>
                    <td class="short">{silent_ticks === undefined ? "–" : `${silent_ticks} of ${expires_at_ticks} ticks`}</td>
                </tr>
            ))}
        </Table>
    );
}

/** Shows the resources that locks guard, or those that lanes are about. */
function Resources({ resources }: { resources: (LockView | LaneView)[] }) {
    return (
        <Table caption="Resources" heads={["guarded by", "newest fence", "writes", "refused"]} empty="">
            {resources.map((resource) => {
                const name = "lock" in resource ? resource.lock : resource.lane;
                return (
                    <tr key={name} data-resource={name}>
                        <th scope="row">{name}</th>
                        <td>{resource.newest_fence ?? "–"}</td>
                        <td>{resource.writes}</td>
                        <td>{resource.refused}</td>
                    </tr>
                );
            })}
        </Table>
    );
}

/** Shows the client of a cell, and its front if it has one. */
export function Client({ cell: { cell, client, front, is_cut_off } }: { cell: CellView }) {
    if (client === undefined) return null;
    return (
        <section aria-label={`Cell ${cell}'s client`} class="cell">
            <h3>
                Cell {cell} {is_cut_off && <b class="tag bad">cut off</b>} {client.is_paused && <b class="tag bad">paused</b>}
            </h3>
            <ul class="workers">
                <li>
                    <b>client</b> {clientText(client)}
                    {client.batch !== undefined && `: ${client.batch}`}
                    {client.fence !== undefined && `, under fence ${client.fence}`}
                </li>
                <li>
                    <b>session</b> {client.session === undefined ? "none" : `number ${client.session}, by its own clock ${client.standing ?? ""}`}
                </li>
                {front && (
                    <li>
                        <b>front</b> {frontText(front)}
                    </li>
                )}
            </ul>
        </section>
    );
}
