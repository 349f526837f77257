// Loads the extension of an unpacked .vsix in Node, with the parts of the VS Code API that its command uses, and
// rewrites one document: node load_extension.cjs FOLDER PROGRAM FILE INSTRUCTION. Prints what happened as JSON.
const Module = require("node:module");
const fs = require("node:fs");
const path = require("node:path");

const [folder, program, file, instruction, cancelAfter] = process.argv.slice(2);
const said = { titles: [], progress: [], warnings: [], text: fs.readFileSync(file, "utf8"), edits: 0 };
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

const known = {
  Range,
  WorkspaceEdit,
  ProgressLocation: { Notification: 15 },
  commands: {
    registerTextEditorCommand: (name, run) => commands.set(name, run),
  },
  workspace: {
    getConfiguration: () => ({ get: (name, fallback) => ({ command: program, languageServer: false })[name] ?? fallback }),
    applyEdit: async (edit) => {
      said.text = edit.text;
      said.edits += 1;
      return true;
    },
  },
  window: {
    showWarningMessage: async (text) => void said.warnings.push(text),
    withProgress: (options, run) => {
      said.titles.push(options.title);
      const token = { onCancellationRequested: (stop) => cancelAfter && setTimeout(stop, Number(cancelAfter)) };
      return run({ report: ({ message }) => said.progress.push(message) }, token);
    },
  },
};
// The language client, which is part of the bundle, extends classes of the API when it is loaded.
const api = new Proxy(known, { get: (_, name) => known[name] ?? class {} });
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? api : load(name, ...rest));

async function main() {
  const manifest = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
  await require(path.join(folder, manifest.main)).activate({ subscriptions: [] });
  const [{ command }] = manifest.contributes.commands;
  const document = {
    fileName: file,
    uri: file,
    version: 1,
    lineCount: said.text.split("\n").length,
    getText: () => said.text,
    validateRange: (range) => range,
  };
  await commands.get(command)({ document, selection: { isEmpty: true } }, undefined, instruction);
  console.log(JSON.stringify(said));
}

main();
