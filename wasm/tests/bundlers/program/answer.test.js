import { answer } from "./answer.js";

test("a test calls the package", () => expect(answer()).toBe("alice after 20 events"));
