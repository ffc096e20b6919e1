// The server of the examples that acquire locks or use queues. It ends with their process.
import { ClaimsServer } from "./claims_server.js";

const server = new ClaimsServer();
await server.start();
server.leaveAtExit();
process.env["LEASEHOLD_SERVER"] = server.url;
