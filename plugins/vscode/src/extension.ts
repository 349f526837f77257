/** specchat in VS Code: a command with the filter, and the language server. */

import { extname } from "node:path";
import * as vscode from "vscode";
import { LanguageClient } from "vscode-languageclient/node";
import { edit } from "./filter";

let client: LanguageClient | undefined;

/** Returns before the language server has started: the command does not need it. */
export function activate(context: vscode.ExtensionContext): void {
  context.subscriptions.push(vscode.commands.registerTextEditorCommand("specchat.rewrite", rewrite));
  const settings = vscode.workspace.getConfiguration("specchat");
  if (settings.get("languageServer")) {
    const server = { command: program(), args: ["lsp"] };
    client = new LanguageClient("specchat", "specchat", server, {
      documentSelector: [{ scheme: "file" }, { scheme: "untitled" }],
    });
    client.start().catch((error: unknown) => vscode.window.showWarningMessage(`specchat lsp: ${error}`));
  }
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

function program(): string {
  return vscode.workspace.getConfiguration("specchat").get("command", "specchat");
}

/** Rewrite the selection, or the whole document when nothing is selected. A key binding may give the instruction. */
async function rewrite(editor: vscode.TextEditor, _edit: unknown, given?: string): Promise<void> {
  const instruction = given ?? (await vscode.window.showInputBox({ prompt: "Rewrite: instruction", ignoreFocusOut: true }));
  if (!instruction?.trim()) {
    return;
  }
  const { document } = editor;
  const { version } = document;
  const range = editor.selection.isEmpty ? whole(document) : editor.selection;
  const options = { location: vscode.ProgressLocation.Notification, title: `specchat: ${instruction}`, cancellable: true };
  const edited = await vscode.window.withProgress(options, async (progress, token) => {
    const stop = new AbortController();
    token.onCancellationRequested(() => stop.abort());
    const begun = Date.now();
    let notice = "";
    const report = () => progress.report({ message: `${notice} ${Math.round((Date.now() - begun) / 1000)} s`.trim() });
    const timer = setInterval(report, 1000);
    const suffix = extname(document.fileName).slice(1);
    const onNotice = (line: string) => {
      notice = line;
      report();
    };
    return edit(program(), document.getText(range), instruction, suffix, stop.signal, onNotice).finally(() => clearInterval(timer));
  });
  if ("failure" in edited) {
    void vscode.window.showWarningMessage(`specchat: ${edited.failure}; the text is unchanged`);
  } else if (document.version !== version) {
    void vscode.window.showWarningMessage("specchat: the text was changed meanwhile; nothing is replaced");
  } else {
    const change = new vscode.WorkspaceEdit();
    change.replace(document.uri, range, edited.text);
    await vscode.workspace.applyEdit(change);
  }
}

function whole(document: vscode.TextDocument): vscode.Range {
  return document.validateRange(new vscode.Range(0, 0, document.lineCount, 0));
}
