// What fails before the page is there would leave it blank: a file that does not come, or a browser that can't run it.
const root = document.getElementById("app");

/** Tells it where the page would be; whatever fails later is told by the page itself. */
function tell(why: string): void {
    if (root === null || root.childElementCount > 0) return;
    const told = document.createElement("p");
    told.setAttribute("role", "alert");
    told.className = "failure";
    told.textContent = `This page could not start: ${why}. Load it again; if that does not help, use a browser that runs WebAssembly.`;
    root.append(told);
}

addEventListener("error", (event) => tell(event.message || "one of its files did not come"));
addEventListener("unhandledrejection", ({ reason }) => tell(reason instanceof Error ? reason.message : String(reason)));
