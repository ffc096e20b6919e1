import "./failure";
import "./styles/base.css";
import "./styles/lanes.css";
import "./styles/panels.css";

import { render } from "preact";

import { keepAddress, openAddress, takeUpAddress } from "./session/address";
import { session } from "./session/app";
import { startPlaying } from "./session/playing";

import { App } from "./ui/app";
import { showTab } from "./ui/places";

takeUpAddress();
await openAddress(session);
startPlaying(session);
keepAddress(session);
showTab(session);
const root = document.getElementById("app");
if (root) {
    root.replaceChildren();
    render(<App />, root);
}
performance.mark("interactive");

