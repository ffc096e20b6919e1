// Shows an error if the page cannot start, for example because a file is missing or the browser
// lacks WebAssembly. Without this module the page would stay blank. It must be imported before all
// others.
const root = document.getElementById("app");

/**
 * Shows the reason in place of the page. Does nothing if the page has started, because the page
 * then shows errors itself.
 */
function showFailure(reason: string): void {
    if (root === null || root.childElementCount > 0) return;
    const message = document.createElement("p");
    message.setAttribute("role", "alert");
    message.className = "failure";
    message.textContent = `This page could not start: ${reason}. Load it again; if that does not help, use a browser that supports WebAssembly.`;
    root.append(message);
}

addEventListener("error", (event) => showFailure(event.message || "one of its files could not be loaded"));
addEventListener("unhandledrejection", ({ reason }) => showFailure(reason instanceof Error ? reason.message : String(reason)));
