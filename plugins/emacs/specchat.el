;;; specchat.el --- Rewrite regions and chat with local models  -*- lexical-binding: t; -*-

;; Author: the specchat authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: convenience, tools
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; `specchat-edit' sends the region, or the buffer, through `specchat edit -' in
;; the background; `specchat-stop' ends that.  `specchat-eglot' registers
;; `specchat lsp' with eglot, `specchat-agent' opens `specchat acp' in
;; agent-shell.

;;; Code:

(defgroup specchat nil "Local language models with speculative decoding." :group 'tools)

(defcustom specchat-command "specchat" "The program." :type 'string)

(defvar-local specchat--process nil "The process that rewrites text of this buffer.")

(define-minor-mode specchat-running-mode
  "Shows in the mode line that a rewrite of this buffer is running."
  :lighter (:eval (specchat--lighter)))

(defun specchat--lighter ()
  "The text for the mode line: what runs, and for how long."
  (when specchat--process
    (format " specchat: %s, %d s"
            (process-get specchat--process :instruction)
            (float-time (time-since (process-get specchat--process :begun))))))

(defun specchat--arguments (instruction)
  "The arguments of a filter that applies INSTRUCTION to text of this buffer."
  (let ((suffix (and buffer-file-name (file-name-extension buffer-file-name))))
    `("edit" "-" "--stderr" ,@(and suffix (list "--lang" suffix)) "--" ,instruction)))

;;;###autoload
(defun specchat-edit (start end instruction)
  "Rewrite the text from START to END with INSTRUCTION, in the background.
The region when there is one, else the buffer.  When it fails, or
when the text changes meanwhile, nothing is replaced, and a message
says why.  Undo reverts an edit in one step, `specchat-stop' ends one."
  (interactive
   (let ((instruction (read-string "Rewrite: ")))
     (if (use-region-p) (list (region-beginning) (region-end) instruction)
       (list (point-min) (point-max) instruction))))
  (when specchat--process
    (user-error "An edit of this buffer is running; M-x specchat-stop ends it"))
  (unless (executable-find specchat-command)
    (user-error "No program %s; the text is unchanged" specchat-command))
  (let* ((errors (generate-new-buffer " *specchat errors*"))
         (process (make-process
                   :name "specchat" :buffer (generate-new-buffer " *specchat*") :stderr errors :noquery t
                   :command (cons specchat-command (specchat--arguments instruction))
                   :coding 'utf-8-unix :connection-type 'pipe :sentinel #'specchat--sentinel)))
    (set-process-sentinel (get-buffer-process errors) #'ignore)
    (process-put process :instruction instruction)
    (process-put process :begun (current-time))
    (process-put process :errors errors)
    (process-put process :text (current-buffer))
    (process-put process :old (buffer-substring-no-properties start end))
    (process-put process :start (copy-marker start t))
    (process-put process :end (copy-marker end))
    (process-put process :timer
                   (run-at-time 0.5 0.5 #'force-mode-line-update t))
    (setq specchat--process process)
    (specchat-running-mode 1)
    (process-send-string process (process-get process :old))
    (process-send-eof process)))

(defun specchat-stop ()
  "End the rewrite of this buffer; its text stays as it is."
  (interactive)
  (unless specchat--process
    (user-error "No edit of this buffer is running"))
  (process-put specchat--process :stopped t)
  (interrupt-process specchat--process))

(defun specchat-wait ()
  "Wait until the rewrite of this buffer has ended; for scripts."
  (while specchat--process
    (accept-process-output nil 0.05)))

(defun specchat--sentinel (process _event)
  "Replace the text, or say why not, when PROCESS has ended."
  (unless (process-live-p process)
    (let ((text (process-get process :text))
          (reason (specchat--reason process))
          (new (with-current-buffer (process-buffer process) (buffer-string))))
      (cancel-timer (process-get process :timer))
      (kill-buffer (process-buffer process))
      (kill-buffer (process-get process :errors))
      (if (not (buffer-live-p text))
          (message "specchat: the buffer was closed meanwhile")
        (with-current-buffer text
          (setq specchat--process nil)
          (specchat-running-mode -1)
          (if (eq 0 (process-exit-status process))
              (specchat--replace process new reason)
            (message "specchat: %s; the text is unchanged" reason)))))))

(defun specchat--reason (process)
  "The last line that PROCESS wrote to stderr, or its exit code."
  (let ((errors (process-get process :errors)))
    (when-let ((pipe (get-buffer-process errors)))
      (while (accept-process-output pipe 0.1)))
    (let ((lines (split-string (with-current-buffer errors (buffer-string)) "\n" t)))
      (cond ((process-get process :stopped) "stopped")
            (lines (string-remove-prefix "specchat: " (car (last lines))))
            ((eq 0 (process-exit-status process)) nil)
            (t (format "exit code %d" (process-exit-status process)))))))

(defun specchat--replace (process new reason)
  "Put NEW in place of the text that was sent to PROCESS; show REASON."
  (let ((start (process-get process :start))
        (end (process-get process :end))
        (text (current-buffer)))
    (if (not (equal (buffer-substring-no-properties start end) (process-get process :old)))
        (message "specchat: the text was changed meanwhile; nothing is replaced")
      (undo-boundary)
      (let ((change (prepare-change-group)))
        (with-temp-buffer
          (insert new)
          (let ((source (current-buffer)))
            (with-current-buffer text
              (save-restriction
                (narrow-to-region start end)
                (replace-buffer-contents source 1.0)))))
        (undo-amalgamate-change-group change))
      (undo-boundary)
      (message "specchat: %s" (or reason (concat (process-get process :instruction) ": done"))))))

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
