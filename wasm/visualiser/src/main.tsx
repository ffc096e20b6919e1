import "./styles/base.css";
import "./styles/lanes.css";
import "./styles/panels.css";

import { render } from "preact";

import { keepAddress, openAddress } from "./session/address";
import { session } from "./session/app";
import { startPlaying } from "./session/playing";
import { findServer } from "./session/served";
import { App } from "./ui/app";

await openAddress(session);
startPlaying(session);
keepAddress(session);
const root = document.getElementById("app");
if (root) render(<App />, root);
performance.mark("interactive");
void findServer();
