import "./start_failure";
import "./styles/base.css";
import "./styles/lanes.css";
import "./styles/panels.css";
import "./styles/tour.css";
import "./styles/motion.css";

import { render } from "preact";

import { openAddress, restorePendingAddress, synchroniseAddress } from "./session/address";
import { session } from "./session/app";
import { startPlayback } from "./session/playback";

import { App } from "./ui/app";
import { showWorld } from "./ui/free_play";
import { selectTabForRun } from "./ui/navigation";

restorePendingAddress();
await openAddress(session);
startPlayback(session);
// Call this after the first run is open. For a session without a run it would erase the address.
synchroniseAddress(session);
selectTabForRun(session);
const origin = session.origin.peek();
if (origin.kind === "free") showWorld(origin.settings);
const root = document.getElementById("app");
if (root) {
    root.replaceChildren();
    render(<App />, root);
}
// Tells `e2e/speed.test.ts` when the page became interactive.
performance.mark("interactive");
