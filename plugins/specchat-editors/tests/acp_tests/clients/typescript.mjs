// The official TypeScript SDK as an editor: what it does with `specchat acp` on the embedded model.
//
//     node typescript.mjs COMMAND ARGUMENT...
//
// prints one line for each thing that holds and the seconds that it took, and ends with 1 at the first that does not.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

import * as acp from "@agentclientprotocol/sdk";

const command = process.argv.slice(2);
const { agent: ask, client: asked } = acp.methods;
const FS = { fs: { readTextFile: true, writeTextFile: true } };

/** An editor with buffers of its own (`files`), an answer to questions (`decision`), and an ear for updates. */
class Editor {
  constructor({ capabilities = {}, decision = "allow", files = {} } = {}) {
    Object.assign(this, { capabilities, decision, files, updates: [], questions: [], written: [], onUpdate() {} });
  }

  async run(work) {
    this.process = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "pipe"] });
    this.stderr = "";
    this.process.stderr.on("data", (data) => (this.stderr += data));
    this.ended = new Promise((resolve) => this.process.on("exit", (code, signal) => resolve(code ?? signal)));
    const stream = acp.ndJsonStream(Writable.toWeb(this.process.stdin), Readable.toWeb(this.process.stdout));
    const app = acp
      .client({ name: "typescript" })
      .onNotification(asked.session.update, ({ params }) => {
        this.updates.push(params.update);
        this.onUpdate(params.update);
      })
      .onRequest(asked.session.requestPermission, ({ params }) => {
        this.questions.push(params);
        return { outcome: { outcome: "selected", optionId: this.decision } };
      })
      .onRequest(asked.fs.readTextFile, ({ params }) => ({ content: this.files[params.path] ?? "" }))
      .onRequest(asked.fs.writeTextFile, ({ params }) => {
        this.written.push(params);
        return {};
      });
    const result = await app.connectWith(stream, async (context) => {
      this.context = context;
      this.hello = await context.request(ask.initialize, {
        protocolVersion: acp.PROTOCOL_VERSION,
        clientCapabilities: this.capabilities,
      });
      return work(this);
    });
    this.process.stdin.end();
    assert.equal(await this.ended, 0);
    assert.equal(this.stderr, "");
    return result;
  }

  open(cwd) {
    return this.context.request(ask.session.new, { cwd, mcpServers: [] }).then((opened) => opened.sessionId);
  }

  prompt(sessionId, text, ...blocks) {
    return this.context.request(ask.session.prompt, { sessionId, prompt: [{ type: "text", text }, ...blocks] });
  }

  cancel(sessionId) {
    return this.context.notify(ask.session.cancel, { sessionId });
  }

  said(kind = "agent_message_chunk") {
    return this.updates
      .filter((update) => update.sessionUpdate === kind)
      .map((update) => update.content.text)
      .join("");
  }

  firstWord() {
    return new Promise((resolve) => {
      this.onUpdate = (update) => update.sessionUpdate === "agent_message_chunk" && resolve();
    });
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
// the embedded model ends its stories early; what it is to repeat it repeats for a second or two
const LINES = Array.from({ length: 160 }, (_, line) => `def step_${line}(value):\n    return value * ${line} + ${7 * line}\n`);
const LONG = `Repeat this code.\n\n\`\`\`python\n${LINES.join("\n")}\`\`\``;

async function withFolder(work) {
  const folder = await mkdtemp(join(tmpdir(), "specchat-ts-"));
  try {
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

let sessionOfYesterday;

const facts = {
  async "it is introduced and opens a session within a second each"(folder) {
    const begun = performance.now();
    let introduced;
    await new Editor().run(async (editor) => {
      introduced = performance.now();
      await editor.open(folder);
    });
    return { initialize: introduced - begun };
  },

  async "it answers in pieces, remembers, and names the conversation"(folder) {
    await new Editor().run(async (editor) => {
      sessionOfYesterday = await editor.open(folder);
      const end = await editor.prompt(sessionOfYesterday, "What is a generator in Python?");
      assert.equal(end.stopReason, "end_turn");
      assert.ok(end.usage.outputTokens > 0);
      assert.ok(end._meta.specchat.draftTokens >= 0);
      assert.ok(editor.said().length > 20);
      const second = await editor.prompt(sessionOfYesterday, "Say that again.");
      assert.ok(second.usage.inputTokens > end.usage.totalTokens);
      assert.ok(editor.updates.some((update) => update.title === "What is a generator in Python?"));
    });
  },

  async "a conversation is listed and told again in a new process"(folder) {
    await new Editor().run(async (editor) => {
      const { sessions } = await editor.context.request(ask.session.list, { cwd: folder });
      assert.equal(sessions[0].sessionId, sessionOfYesterday);
      await editor.context.request(ask.session.load, { sessionId: sessionOfYesterday, cwd: folder, mcpServers: [] });
      assert.match(editor.said("user_message_chunk"), /What is a generator in Python\?Say that again\./);
      assert.equal((await editor.prompt(sessionOfYesterday, "Thanks.")).stopReason, "end_turn");
    });
  },

  async "a cancel after 0.1 s is answered at once"(folder) {
    return new Editor().run(async (editor) => {
      const session = await editor.open(folder);
      const answer = editor.prompt(session, LONG);
      await pause(100);
      return cancelled(editor, session, answer);
    });
  },

  async "a cancel in the middle of an answer keeps what was said"(folder) {
    return new Editor().run(async (editor) => {
      const session = await editor.open(folder);
      const heard = editor.firstWord();
      const answer = editor.prompt(session, LONG);
      await heard;
      const seconds = await cancelled(editor, session, answer);
      assert.ok(editor.said().length > 0);
      const count = editor.updates.length;
      await editor.context.request(ask.session.list, {});
      assert.equal(editor.updates.length, count);
      return seconds;
    });
  },

  async "prompts wait for each other, and a cancel ends them all"(folder) {
    return new Editor().run(async (editor) => {
      const session = await editor.open(folder);
      const ends = await Promise.all([editor.prompt(session, "Hello."), editor.prompt(session, "Hello again.")]);
      assert.deepEqual(ends.map((end) => end.stopReason), ["end_turn", "end_turn"]);
      const heard = editor.firstWord();
      const answers = Promise.all([editor.prompt(session, LONG), editor.prompt(session, LONG)]);
      await heard;
      await editor.cancel(session);
      assert.deepEqual((await answers).map((end) => end.stopReason), ["cancelled", "cancelled"]);
    });
  },

  async "an edit that is allowed is written by an editor that can"(folder) {
    const path = join(folder, "a.py");
    await writeFile(path, "saved = 0\n");
    const buffer = "def add(first, second):\n    total = first + second\n    return total\n";
    await new Editor({ capabilities: FS, files: { [path]: buffer } }).run(async (editor) => {
      const session = await editor.open(folder);
      const end = await editor.prompt(session, "/edit a.py Rename total to amount.");
      assert.equal(end.stopReason, "end_turn", editor.said());
      const [question] = editor.questions;
      assert.equal(question?.toolCall.content[0].oldText, buffer, editor.said());
      assert.match(question.toolCall.content[0].newText, /amount = first \+ second/);
      assert.deepEqual(editor.written.map((each) => each.content), [question.toolCall.content[0].newText]);
      assert.equal(await readFile(path, "utf8"), "saved = 0\n");
    });
  },

  async "an edit in words is written to the disk for an editor without files"(folder) {
    const path = join(folder, "a.py");
    await writeFile(path, "def add(first, second):\n    total = first + second\n    return total\n");
    const link = { type: "resource_link", name: "a.py", uri: pathToFileURL(path).href };
    await new Editor().run(async (editor) => {
      await editor.prompt(await editor.open(folder), "Rename total to amount in", link);
      assert.match(await readFile(path, "utf8"), /amount = first \+ second/, editor.said());
    });
  },

  async "an edit that is rejected changes nothing"(folder) {
    const path = join(folder, "a.py");
    const text = "def add(first, second):\n    total = first + second\n    return total\n";
    await writeFile(path, text);
    await new Editor({ decision: "reject" }).run(async (editor) => {
      const end = await editor.prompt(await editor.open(folder), "/edit a.py Rename total to amount.");
      assert.equal(end.stopReason, "end_turn");
      assert.equal(editor.questions.length, 1, editor.said());
      assert.equal(await readFile(path, "utf8"), text);
    });
  },

  async "a termination in the middle of an answer ends it"(folder) {
    const editor = new Editor();
    let begun;
    const left = editor.run(async () => {
      const session = await editor.open(folder);
      const heard = editor.firstWord();
      editor.prompt(session, LONG).catch(() => {});
      await heard;
      begun = performance.now();
      editor.process.kill("SIGTERM");
      await editor.ended;
    });
    await assert.rejects(left, /connection closed/i);
    assert.equal(await editor.ended, 143);
    return { end: performance.now() - begun };
  },
};

async function cancelled(editor, session, answer) {
  const begun = performance.now();
  await editor.cancel(session);
  assert.equal((await answer).stopReason, "cancelled");
  return { cancel: performance.now() - begun };
}

await withFolder(async (folder) => {
  for (const [name, fact] of Object.entries(facts)) {
    try {
      const measured = (await fact(folder)) ?? {};
      const times = Object.entries(measured).map(([what, milliseconds]) => `${what} ${Math.round(milliseconds)} ms`);
      console.log(["ok", name, ...times].join(" · "));
    } catch (error) {
      console.log(`not ok · ${name}\n${error.stack ?? error}`);
      process.exitCode = 1;
    }
  }
});
process.exit();
