// A page that calls the package on its main thread and in a worker. Vite and webpack find the worker by this
// pattern, and give it their default format.
import { answer } from "./answer.js";

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
worker.onmessage = ({ data }) => (document.body.dataset.worker = data);
worker.onerror = ({ message }) => console.error(`the worker failed: ${message}`);

document.body.dataset.page = answer();
