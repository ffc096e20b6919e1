import type { CellView, ClaimView, LeaseView, View } from "../model/protocol";
import { changeText, formatDuration, leaseLabel, phaseText, saveResultText } from "../model/texts";
import { session } from "../session/app";
import { Diagrams } from "./diagrams";
import { Client, LockState } from "./lock_state";
import { displayed } from "./notice";
import { Status, Table } from "./table";
import { shownStep } from "./tour";

/**
 * Shows the state at the position: the claims and leases of the service, the transition diagrams,
 * and the tables of each cell. In a world of locks or of a queue, shows sessions, locks, lanes, requests and clients instead. For a server's log, which has only leases, shows the last leases and
 * their diagram.
 */
export function State() {
    const { view, position } = displayed.value;
    const recording = session.recording.value;
    if (recording) return <RecordedLeases leases={recording.leases(position)} />;
    if (!view) return null;
    if (view.locks) {
        const changed = new Set(view.fired.map(({ of }) => of));
        return (
            <div class="state split">
                <div>
                    <LockState locks={view.locks} changed={changed} isUp={view.is_up} />
                    <Diagrams />
                </div>
                <div>
                    {view.cells.map((cell) => (
                        <Client key={cell.cell} cell={cell} />
                    ))}
                </div>
            </div>
        );
    }
    const changedNames = new Set(view.changed.names);
    const changedLeases = new Set(view.changed.leases);
    return (
        <div class="state split">
            <div>
                <section aria-label="The service's tables">
                    <h3>
                        The service {!view.is_up && <b class="tag bad">down</b>}
                    </h3>
                    <Claims claims={view.claims} changed={changedNames} />
                    <Leases leases={view.leases} changed={changedLeases} />
                </section>
                {!shownStep.value && <Diagrams />}
            </div>
            <div>
                {view.cells.map((cell) => (
                    <Cell key={cell.cell} cell={cell} view={view} names={changedNames} leases={changedLeases} />
                ))}
            </div>
        </div>
    );
}

/**
 * The largest number of leases shown from a server's log. A long log has thousands, and rendering
 * all takes too long.
 */
const MAX_RECORDED_LEASES = 40;

function RecordedLeases({ leases }: { leases: LeaseView[] }) {
    const changed = new Set(displayed.value.entry?.fired.map((fired) => fired.of) ?? []);
    return (
        <div class="state">
            <section aria-label="The service's leases">
                <h3>The service, by its log</h3>
                <Leases leases={leases.slice(-MAX_RECORDED_LEASES)} changed={changed} />
            </section>
            <Diagrams />
        </div>
    );
}

function Claims({ claims, changed }: { claims: ClaimView[]; changed: Set<string> }) {
    return (
        <Table place="claims" caption="Claims" heads={["name", "cell", "row", "state", "lease"]} empty="no name is claimed">
            {claims.map((claim) => (
                <tr key={claim.name} class={changed.has(claim.name) ? "changed" : ""} data-claim={claim.name}>
                    <th scope="row">{claim.name}</th>
                    <td>{claim.cell}</td>
                    <td>{claim.row_before ? `${claim.row_before} → ${claim.row ?? ""}` : claim.row}</td>
                    <td>
                        <Status status={claim.status} />
                    </td>
                    <td>{claim.lease ? leaseLabel(claim.lease) : "–"}</td>
                </tr>
            ))}
        </Table>
    );
}

/**
 * The number of latest leases that are shown in addition to the outstanding ones. There can be many
 * settled leases.
 */
const SHOWN_LEASES = 12;

function Leases({ leases, changed }: { leases: LeaseView[]; changed: Set<string> }) {
    const shown = leases.filter((lease, index) => lease.status === "Outstanding" || index >= leases.length - SHOWN_LEASES);
    const caption = shown.length < leases.length ? `Leases (${leases.length}, ${shown.length} shown)` : "Leases";
    return (
        <Table place="leases" caption={caption} heads={["lease", "cell", "names", "state", "age"]} empty="the service knows of no lease">
            {shown.map((lease) => (
                <tr key={lease.lease} class={changed.has(lease.lease) ? "changed" : ""} data-lease={lease.lease}>
                    <th scope="row">{leaseLabel(lease.lease)}</th>
                    <td>{lease.cell}</td>
                    <td>{lease.names.join(", ") || "–"}</td>
                    <td>
                        <Status status={lease.status} />
                    </td>
                    <td class="short">{formatDuration(lease.age_micros)}</td>
                </tr>
            ))}
        </Table>
    );
}

interface CellProps {
    cell: CellView;
    view: View;
    names: Set<string>;
    leases: Set<string>;
}

function Cell({ cell, view, names, leases }: CellProps) {
    // Ignore a difference between clocks of less than a second, because every threshold is in whole
    // seconds.
    const ahead = Math.abs(cell.clock_ahead_micros) >= 1e6 ? cell.clock_ahead_micros : 0;
    return (
        <section aria-label={`Cell ${cell.cell}'s tables`} class="cell">
            <h3>
                Cell {cell.cell} {cell.is_cut_off && <b class="tag bad">cut off</b>}
                {ahead !== 0 && <span class="tag">clock {formatDuration(ahead)} {ahead > 0 ? "ahead" : "behind"}</span>}
            </h3>
            <Table place={`rows:${cell.cell}`} caption="Rows" heads={["row", "name", "written"]} empty="no rows">
                {cell.rows.map((row) => (
                    <tr key={row.row} class={names.has(row.name) ? "changed" : ""} data-row={row.row}>
                        <th scope="row">{row.row}</th>
                        <td>
                            {row.name} {row.is_stray && <span class="tag bad">written by plain SQL</span>}
                        </td>
                        <td>{formatDuration(row.age_micros)} ago</td>
                    </tr>
                ))}
            </Table>
            <Table place={`lease_rows:${cell.cell}`} caption="Lease rows" heads={["lease", "begun"]} empty="no lease rows">
                {cell.lease_rows.map((row) => (
                    <tr key={row.lease} class={leases.has(row.lease) ? "changed" : ""}>
                        <th scope="row">{leaseLabel(row.lease)}</th>
                        <td>{formatDuration(row.age_micros)} ago</td>
                    </tr>
                ))}
            </Table>
            <Transactions cell={cell} />
            {!shownStep.value && <Workers cell={cell} view={view} />}
        </section>
    );
}

function Transactions({ cell }: { cell: CellView }) {
    if (cell.transactions.length === 0) return null;
    const write = ([row, before, after]: CellView["transactions"][number]["writes"][number]) =>
        before && after ? `row ${row}: ${before} → ${after}` : after ? `+ row ${row}: ${after}` : `− row ${row}: ${before ?? ""}`;
    return (
        <Table caption="Open transactions" heads={["worker", "state", "writes"]} empty="">
            {cell.transactions.map((transaction) => (
                <tr key={transaction.worker} class="open">
                    <th scope="row">{transaction.worker}</th>
                    <td>
                        <Status status={transaction.state} />
                    </td>
                    <td>{[...transaction.writes.map(write), ...(transaction.lease ? [`lease row ${leaseLabel(transaction.lease)}`] : [])].join("; ") || "nothing yet"}</td>
                </tr>
            ))}
        </Table>
    );
}

function Workers({ cell, view }: { cell: CellView; view: View }) {
    return (
        <ul class="workers">
            {cell.workers.map((worker, number) => (
                <li key={number}>
                    <b>{cell.workers.length > 1 ? `worker ${number}` : "worker"}</b>{" "}
                    {worker.phase && worker.change !== undefined
                        ? `saves for its user: ${changeText(worker.change, view.names)}. Next step: it ${phaseText(worker.phase)}`
                        : worker.told
                          ? `answered its user: ${saveResultText(worker.told)}`
                          : "is idle"}
                </li>
            ))}
        </ul>
    );
}
