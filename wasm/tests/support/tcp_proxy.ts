// A TCP proxy between client and server that can drop the server's answers.
import { once } from "node:events";
import { type AddressInfo, createServer, connect, type Server, type Socket } from "node:net";
import type { TestContext } from "node:test";

/** A proxy before one server. It ends with the test. */
export class TcpProxy {
    readonly #server: Server;
    readonly #sockets: Socket[] = [];
    #waiting: (() => void)[] | undefined;
    #cut: (() => void) | undefined;

    static async start(test: TestContext, port: number): Promise<TcpProxy> {
        const proxy = new TcpProxy(port);
        test.after(() => proxy.#end());
        await once(proxy.#server.listen(0, "127.0.0.1"), "listening");
        return proxy;
    }

    private constructor(port: number) {
        this.#server = createServer((client) => {
            const isFirst = this.#sockets.length === 0;
            const forward = (): void => this.#forward(client, connect(port, "127.0.0.1"), isFirst);
            this.#sockets.push(client.on("error", () => {}));
            if (this.#waiting) this.#waiting.push(forward);
            else forward();
        });
    }

    get url(): string {
        return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    }

    /**
     * Cuts the first connection, which is that of the main thread, when the server next sends data
     * on it, without forwarding that data. Later connections wait until `open` is called. Returns a
     * promise that waits for the cut.
     */
    cutNextAnswer(): Promise<void> {
        return new Promise((resolve) => {
            this.#cut = resolve;
        });
    }

    /** Lets the connections that wait go on, and all later ones. */
    open(): void {
        for (const forward of this.#waiting ?? []) forward();
        this.#waiting = undefined;
    }

    #forward(client: Socket, server: Socket, isFirst: boolean): void {
        this.#sockets.push(server.on("error", () => {}));
        client.pipe(server);
        server.on("data", (data) => {
            if (isFirst && this.#cut) this.#cutOff(client);
            else client.write(data);
        });
        server.on("close", () => client.destroy());
        client.on("close", () => server.destroy());
    }

    #cutOff(client: Socket): void {
        this.#waiting = [];
        client.destroy();
        this.#cut?.();
        this.#cut = undefined;
    }

    #end(): void {
        this.#server.close();
        for (const socket of this.#sockets) socket.destroy();
    }
}
