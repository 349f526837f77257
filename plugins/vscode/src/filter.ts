/** The filter `specchat edit -`. Knows no editor, so tests need none. */

import { spawn } from "node:child_process";

/** The result of an edit: the new text, or the reason of a failure. */
export type Edited = { text: string } | { failure: string };

/**
 * Edit a text with an instruction. On failure the program prints the old text, and the reason on stderr.
 * `suffix` is that of the file name, such as "py", or "". Aborting ends the program.
 * `onNotice` gets each line of stderr while it runs.
 */
export function edit(
  program: string,
  text: string,
  instruction: string,
  suffix: string,
  signal?: AbortSignal,
  onNotice?: (line: string) => void,
): Promise<Edited> {
  const language = suffix ? ["--lang", suffix] : [];
  return new Promise((resolve) => {
    const child = spawn(program, ["edit", "-", "--stderr", ...language, "--", instruction], { signal });
    const out: Buffer[] = [];
    let errors = "";
    child.stdout.on("data", (bytes: Buffer) => out.push(bytes));
    child.stderr.on("data", (bytes: Buffer) => {
      errors += bytes.toString();
      onNotice?.(lastLine(errors));
    });
    child.stdin.on("error", () => undefined); // the exit code reports a program that ended early
    child.on("error", (error) => resolve({ failure: signal?.aborted ? "stopped" : error.message }));
    child.on("close", (code) => {
      const reason = lastLine(errors) || `${program} ended with exit code ${code}`;
      resolve(code === 0 ? { text: Buffer.concat(out).toString() } : { failure: reason });
    });
    child.stdin.end(text);
  });
}

function lastLine(text: string): string {
  return (text.trim().split("\n").at(-1) ?? "").replace(/^specchat: /, "");
}
