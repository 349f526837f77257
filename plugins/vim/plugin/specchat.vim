" Rewrite a range with specchat: the :! filter with `specchat edit -`.
"
"   :'<,'>Specchat add type hints
"   :Specchat rename `width` to `breadth`      the whole buffer
"
" When the filter fails, it prints the old text unchanged, so the buffer never loses it; `u` reverts an edit.

if exists('g:loaded_specchat')
  finish
endif
let g:loaded_specchat = 1

function! s:Edit(first, last, instruction) abort
  let l:command = [get(g:, 'specchat_command', 'specchat'), 'edit', '-']
  let l:suffix = expand('%:e')
  if !empty(l:suffix)
    let l:command += ['--lang', l:suffix]
  endif
  let l:command += ['--', a:instruction]
  let l:shell = join(map(l:command, 'shellescape(v:val, 1)'))
  silent execute a:first . ',' . a:last . '!' . l:shell
  if v:shell_error
    echohl WarningMsg
    echomsg 'specchat: no edit (exit code ' . v:shell_error . '); the text is unchanged'
    echohl None
  endif
endfunction

command! -range=% -nargs=+ Specchat call s:Edit(<line1>, <line2>, <q-args>)
