// Loads the extension of an unpacked .vsix in Node, with the parts of the VS Code API that it uses, and rewrites one
// document: node load_extension.cjs FOLDER PROGRAM FILE INSTRUCTION [OPTIONS]. Prints what happened as JSON.
//
// Options, as JSON: cancelAfter, in milliseconds; asks: the user types the instruction after the focus was elsewhere;
// serverLog: the language server is started, and the command runs once the server has written to this file.
const Module = require("node:module");
const fs = require("node:fs");
const path = require("node:path");

const POLL_MILLISECONDS = 20;
const [folder, program, file, instruction, options = "{}"] = process.argv.slice(2);
const { cancelAfter, asks, serverLog } = JSON.parse(options);
const said = { titles: [], progress: [], warnings: [], text: fs.readFileSync(file, "utf8"), edits: 0, active: false };
const commands = new Map();

class Range {
  constructor(first, firstColumn, last, lastColumn) {
    Object.assign(this, { first, firstColumn, last, lastColumn });
  }
}

class WorkspaceEdit {
  replace(uri, range, text) {
    Object.assign(this, { uri, range, text });
  }
}

class EventEmitter {
  event = () => ({ dispose() {} });
  fire() {}
  dispose() {}
}

// The language client, a part of the bundle, reads, calls and extends much of the API: what is not known here does
// nothing, and is a class, a function and a namespace at once.
function part(known) {
  return new Proxy(known, { get: (_, name) => (name in known || name === "then" ? known[name] : part(class {})), apply: () => part({}) });
}

const settings = { command: program, languageServer: Boolean(serverLog) };
const api = part({
  Range,
  WorkspaceEdit,
  EventEmitter,
  version: "1.100.0",
  ProgressLocation: { Notification: 15 },
  commands: part({
    registerTextEditorCommand: (name, run) => commands.set(name, run),
  }),
  workspace: part({
    workspaceFolders: undefined,
    textDocuments: [],
    notebookDocuments: [],
    getConfiguration: () => ({ get: (name, fallback) => settings[name] ?? fallback }),
    applyEdit: async (edit) => {
      said.text = edit.text;
      said.edits += 1;
      return true;
    },
  }),
  window: part({
    // VS Code closes an input box that loses the focus, unless it is told not to.
    showInputBox: async ({ ignoreFocusOut }) => (ignoreFocusOut ? instruction : undefined),
    showWarningMessage: async (text) => void said.warnings.push(text),
    withProgress: (options, run) => {
      said.titles.push(options.title);
      const token = { onCancellationRequested: (stop) => cancelAfter && setTimeout(stop, Number(cancelAfter)) };
      return run({ report: ({ message }) => said.progress.push(message) }, token);
    },
  }),
});
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? api : load(name, ...rest));

async function main() {
  const manifest = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
  const activation = Promise.resolve(require(path.join(folder, manifest.main)).activate({ subscriptions: [] }));
  void activation.then(() => (said.active = true));
  while (serverLog && !(fs.existsSync(serverLog) && fs.statSync(serverLog).size)) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
  }
  const [{ command }] = manifest.contributes.commands;
  const document = {
    fileName: file,
    uri: file,
    version: 1,
    lineCount: said.text.split("\n").length,
    getText: () => said.text,
    validateRange: (range) => range,
  };
  await commands.get(command)({ document, selection: { isEmpty: true } }, undefined, asks ? undefined : instruction);
  process.stdout.write(JSON.stringify(said), () => process.exit(0)); // a language server would keep the process alive
}

main();
