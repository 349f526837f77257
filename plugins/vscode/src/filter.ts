/** A text through `specchat edit -`. Knows no editor, so that it can be tried without one. */

import { spawn } from "node:child_process";

/** What came of an edit: the new text, or why the old one stays. */
export type Edited = { text: string } | { failure: string };

/**
 * The text as the instruction wants it. The program gives the old text back when it fails; it is asked to say why.
 * `ending` is that of the file name, such as "py", or "". Aborting ends the program.
 */
export function edit(
  program: string,
  text: string,
  instruction: string,
  ending: string,
  signal?: AbortSignal,
): Promise<Edited> {
  const language = ending ? ["--lang", ending] : [];
  return new Promise((resolve) => {
    const child = spawn(program, ["edit", "-", "--stderr", ...language, "--", instruction], { signal });
    const out: Buffer[] = [];
    let said = "";
    child.stdout.on("data", (bytes: Buffer) => out.push(bytes));
    child.stderr.on("data", (bytes: Buffer) => (said += bytes.toString()));
    child.stdin.on("error", () => undefined); // a program that ended early says so by its exit code
    child.on("error", (error) => resolve({ failure: signal?.aborted ? "stopped" : error.message }));
    child.on("close", (code) => {
      const reason = said.trim().split("\n").at(-1) || `${program} ended with exit code ${code}`;
      resolve(code === 0 ? { text: Buffer.concat(out).toString() } : { failure: reason });
    });
    child.stdin.end(text);
  });
}
