# Rewrite the selections with specchat: :specchat 'add type hints'. `u` reverts it.
# The filter returns a selection unchanged when it fails; specchat-reason shows why.

declare-option -docstring 'the program' str specchat_command specchat

define-command specchat -params 1 -docstring 'specchat INSTRUCTION: rewrite the selections' %{
    set-register a %arg{1}
    execute-keys '|"$kak_opt_specchat_command" edit --lang "${kak_buffile##*.}" - -- "$kak_reg_a"<ret>'
}

define-command specchat-reason -docstring 'show why the last rewrite failed' %{
    evaluate-commands %sh{
        runtime="${SPECCHAT_RUNTIME:-${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/specchat}}"
        log="${runtime:-/tmp/specchat-$(id -u)}/edit.log"
        reason=$(tail -n 1 "$log" 2>/dev/null | sed "s/'/''/g")
        printf "echo -- '%s'" "${reason:-no rewrite failed}"
    }
}
