// Writes the modules of `pkg` that are made from other files: the wasm files as text, the wire contract
// of the clients, and the numbers of types in the contract of claims.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

// The import gives protobufjs the file `google/protobuf/descriptor.proto`.
import "@grpc/proto-loader";
import protobuf from "protobufjs";

const root = new URL("../", import.meta.url);
const DIRECTORIES = ["../proto/proto/", "js/client/"].map((path) => new URL(path, root));

const SERVICES = ["sessions/v1/session", "locks/v1/lock", "queues/v1/queue"].map((path) => `leasehold/${path}_service.proto`);
const RECORD = "gitlab/cells/topology_service/claims/v1/record.proto";

/** The exported enumerations, each with its message and the start of its names that is left out. */
const ENUMERATIONS = [
    { name: "BucketType", message: "Bucket", prefix: "", doc: "The kinds of unique names." },
    { name: "SubjectType", message: "Subject", prefix: "", doc: "The kinds of objects that a claim can belong to." },
    { name: "SourceType", message: "Source", prefix: "RAILS_TABLE_", doc: "The tables whose rows make claims." },
];

/** Returns the files of the contract as protobufjs reads them, with their imports. */
function read(files) {
    const contract = new protobuf.Root();
    contract.resolvePath = (_, file) => {
        const found = DIRECTORIES.map((directory) => new URL(file, directory)).find((url) => existsSync(url));
        // protobufjs has Google's own files.
        return found === undefined ? file : fileURLToPath(found);
    };
    return contract.loadSync(files);
}

function write(file, text) {
    writeFileSync(new URL(`pkg/${file}`, root), text);
}

function inline(name) {
    const base64 = readFileSync(new URL(`pkg/${name}_bg.wasm`, root)).toString("base64");
    write(`${name}_inlined.js`, `export default "${base64}";\n`);
}

function enumeration({ name, message, prefix, doc }) {
    const { values } = record.lookupEnum(`gitlab.cells.topology_service.claims.v1.${message}.Type`);
    const members = Object.entries(values)
        .filter(([, number]) => number !== 0)
        .map(([member, number]) => `    ${member.slice(prefix.length)}: ${number},\n`);
    const types = members.map((member) => member.replace("    ", "    readonly ").replace(",", ";")).join("");
    return {
        code: `export const ${name} = Object.freeze({\n${members.join("")}});\n`,
        types: `/** ${doc} Values are the numbers of the wire contract. */\nexport const ${name}: {\n${types}};\nexport type ${name} = (typeof ${name})[keyof typeof ${name}];\n`,
    };
}

for (const name of ["leasehold", "simulation"]) inline(name);

write("contract.js", `export default ${JSON.stringify(read([...SERVICES, "status.proto"]).toJSON())};\n`);

const record = read(RECORD);
const enumerations = ENUMERATIONS.map(enumeration);
write("enumerations.js", enumerations.map(({ code }) => code).join("\n"));
write("enumerations.d.ts", enumerations.map(({ types }) => types).join("\n"));
