;;; specchat.el --- Rewrite regions and chat with specchat  -*- lexical-binding: t; -*-

;; Package-Requires: ((emacs "28.1"))
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; `specchat-edit' sends the region, or the buffer, through `specchat edit -'.
;; `specchat-eglot' registers `specchat lsp' with eglot, `specchat-agent' opens
;; `specchat acp' in agent-shell.

;;; Code:

(defgroup specchat nil "Local language models with speculative decoding." :group 'tools)

(defcustom specchat-command "specchat" "The program." :type 'string)

(defun specchat--arguments (instruction)
  "The arguments of a filter that applies INSTRUCTION to text of this buffer."
  (let ((suffix (and buffer-file-name (file-name-extension buffer-file-name))))
    `("edit" "-" ,@(and suffix (list "--lang" suffix)) "--" ,instruction)))

;;;###autoload
(defun specchat-edit (start end instruction)
  "Rewrite the text from START to END with INSTRUCTION.
The region when there is one, else the buffer.  When it fails, the
text stays unchanged.  Undo reverts an edit in one step."
  (interactive
   (let ((instruction (read-string "Rewrite: ")))
     (if (use-region-p) (list (region-beginning) (region-end) instruction)
       (list (point-min) (point-max) instruction))))
  (let ((arguments (specchat--arguments instruction))
        (coding-system-for-read 'utf-8-unix)
        (coding-system-for-write 'utf-8-unix)
        (text (current-buffer)))
    (with-temp-buffer
      (let* ((new (current-buffer))
             (status (with-current-buffer text
                       (apply #'call-process-region start end specchat-command
                              nil (list new nil) nil arguments))))
        (if (eq status 0)
            (with-current-buffer text
              (save-restriction
                (narrow-to-region start end)
                (replace-buffer-contents new)))
          (message "specchat: no edit (%s); the text is unchanged" status))))))

(defvar eglot-server-programs)

;;;###autoload
(defun specchat-eglot (modes)
  "Let eglot start `specchat lsp' for MODES, a symbol or a list of them."
  (with-eval-after-load 'eglot
    (add-to-list 'eglot-server-programs `(,modes . (,specchat-command "lsp")))))

(declare-function agent-shell-start "ext:agent-shell")
(declare-function agent-shell-make-agent-config "ext:agent-shell")
(declare-function acp-make-client "ext:acp")

;;;###autoload
(defun specchat-agent ()
  "Open `specchat acp' in agent-shell."
  (interactive)
  (require 'agent-shell)
  (agent-shell-start
   :config (agent-shell-make-agent-config
            :identifier 'specchat
            :mode-line-name "specchat"
            :buffer-name "specchat"
            :shell-prompt "specchat> "
            :shell-prompt-regexp "specchat> "
            :client-maker (lambda (buffer)
                            (acp-make-client :command specchat-command
                                             :command-params '("acp")
                                             :context-buffer buffer)))))

(provide 'specchat)
;;; specchat.el ends here
