/** Tests of the filter without an editor: node --test, with `specchat` on the PATH. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { edit } from "./filter";

const CODE = `def area(width, height):
    """Return the area of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("sizes must not be negative")
    return width * height
`;

test("a text is edited", async () => {
  const edited = await edit("specchat", CODE, "Rename `width` to `breadth`.", "py");
  assert.ok("text" in edited, JSON.stringify(edited));
  assert.match(edited.text, /breadth/);
});

test("an empty text stays empty", async () => {
  assert.deepEqual(await edit("specchat", "", "Sort it.", ""), { text: "" });
});

test("a failure has a reason in one line", async () => {
  const edited = await edit("specchat", CODE, " ", "py");
  assert.ok("failure" in edited);
  assert.match(edited.failure, /^an edit needs an instruction/);
});

test("a missing program is reported", async () => {
  const edited = await edit("specchat-of-nobody", CODE, "Sort it.", "py");
  assert.ok("failure" in edited);
  assert.match(edited.failure, /ENOENT/);
});

test("an edit can be cancelled", async () => {
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 50);
  assert.deepEqual(await edit("specchat", CODE, "Rename `width` to `breadth`.", "py", stop.signal), {
    failure: "stopped",
  });
});
