import "./start_failure";
import "./styles/base.css";
import "./styles/lanes.css";
import "./styles/panels.css";

import { render } from "preact";

import { openAddress, restorePendingAddress, synchroniseAddress } from "./session/address";
import { session } from "./session/app";
import { startPlayback } from "./session/playback";

import { App } from "./ui/app";
import { selectTabForRun } from "./ui/navigation";

restorePendingAddress();
await openAddress(session);
startPlayback(session);
// After the first run is open: synchronising a session without a run would erase the address.
synchroniseAddress(session);
selectTabForRun(session);
const root = document.getElementById("app");
if (root) {
    root.replaceChildren();
    render(<App />, root);
}
// Measured by `e2e/speed.test.ts`.
performance.mark("interactive");
