" The filter `specchat edit -` as a job: Vim stays usable, and the text changes in one step when the job has ended.
" The lines are replaced only where they still have the text that was sent.

let s:edits = {}

function! specchat#Edit(first, last, instruction) abort
  if !(has('job') && has('channel') && has('timers'))
    return s:Warn('this Vim has no +job, +channel and +timers; use :!specchat edit - instead')
  endif
  let l:buffer = bufnr('%')
  if has_key(s:edits, l:buffer)
    return s:Warn('an edit of this buffer is running; :SpecchatStop ends it')
  endif
  let l:command = [get(g:, 'specchat_command', 'specchat'), 'edit', '-', '--stderr']
  let l:suffix = expand('%:e')
  let l:command += (empty(l:suffix) ? [] : ['--lang', l:suffix]) + ['--', a:instruction]
  let l:edit = {'buffer': l:buffer, 'first': a:first, 'old': getline(a:first, a:last), 'count': line('$'),
        \ 'out': [], 'reason': '', 'open': 2, 'code': -1, 'begun': reltime(), 'instruction': a:instruction}
  let l:edit.job = job_start(l:command, {'out_mode': 'raw', 'err_mode': 'nl',
        \ 'out_cb': {_, text -> add(l:edit.out, text)}, 'err_cb': {_, line -> s:Hear(l:edit, line)},
        \ 'close_cb': {_ -> s:End(l:edit)}, 'exit_cb': {_, code -> s:End(extend(l:edit, {'code': code}))}})
  if job_status(l:edit.job) ==# 'fail'
    return s:Warn('no program ' . l:command[0] . '; the text is unchanged')
  endif
  let s:edits[l:buffer] = l:edit
  call ch_sendraw(l:edit.job, join(l:edit.old, "\n") . "\n")
  call ch_close_in(l:edit.job)
  let l:edit.timer = timer_start(500, {_ -> s:Progress(l:edit)}, {'repeat': -1})
endfunction

function! specchat#Stop() abort
  let l:edit = get(s:edits, bufnr('%'), {})
  if empty(l:edit)
    return s:Warn('no edit of this buffer is running')
  endif
  let l:edit.reason = 'stopped'
  call job_stop(l:edit.job)
endfunction

" Wait until the edit of this buffer has ended; for scripts.
function! specchat#Wait() abort
  while has_key(s:edits, bufnr('%'))
    sleep 20m
  endwhile
endfunction

" What runs in this buffer, for a status line; '' for nothing.
function! specchat#Status() abort
  let l:edit = get(s:edits, bufnr('%'), {})
  if empty(l:edit)
    return ''
  endif
  let l:seconds = float2nr(reltimefloat(reltime(l:edit.begun)))
  return printf('specchat: %s, %d s (:SpecchatStop ends it)', empty(l:edit.reason) ? l:edit.instruction : l:edit.reason, l:seconds)
endfunction

function! s:Hear(edit, line) abort
  if a:edit.reason !=# 'stopped'
    let a:edit.reason = substitute(a:line, '^specchat: ', '', '')
  endif
endfunction

function! s:Progress(edit) abort
  if a:edit.buffer == bufnr('%') && mode() ==# 'n'
    redraw
    echo strcharpart(specchat#Status(), 0, &columns - 12)
  endif
endfunction

" The exit of the program and the end of its output come in any order.
function! s:End(edit) abort
  let a:edit.open -= 1
  if a:edit.open > 0
    return
  endif
  call timer_stop(a:edit.timer)
  call remove(s:edits, a:edit.buffer)
  if a:edit.code != 0
    let l:reason = empty(a:edit.reason) ? 'exit code ' . a:edit.code : a:edit.reason
    return s:Warn(l:reason . '; the text is unchanged')
  endif
  let l:new = split(join(a:edit.out, ''), "\n", 1)
  call s:Replace(a:edit, empty(l:new[-1]) ? l:new[:-2] : l:new)
endfunction

function! s:Replace(edit, new) abort
  let [l:buffer, l:old, l:new] = [a:edit.buffer, a:edit.old, a:new]
  if !bufloaded(l:buffer)
    return s:Warn('the buffer was closed meanwhile')
  endif
  let l:first = a:edit.first
  if getbufline(l:buffer, l:first, l:first + len(l:old) - 1) != l:old
    let l:first += getbufinfo(l:buffer)[0].linecount - a:edit.count  " lines above it came or went
  endif
  if l:first < 1 || getbufline(l:buffer, l:first, l:first + len(l:old) - 1) != l:old
    return s:Warn('the text was changed meanwhile; nothing is replaced')
  endif
  let l:head = 0
  while l:head < min([len(l:old), len(l:new)]) && l:old[l:head] ==# l:new[l:head]
    let l:head += 1
  endwhile
  let l:tail = 0
  while l:tail < min([len(l:old), len(l:new)]) - l:head && l:old[-1 - l:tail] ==# l:new[-1 - l:tail]
    let l:tail += 1
  endwhile
  let [l:changed, l:from] = [l:new[l:head : len(l:new) - l:tail - 1], l:first + l:head]
  let l:replaced = len(l:old) - l:head - l:tail
  let l:levels = getbufvar(l:buffer, '&undolevels')
  call setbufvar(l:buffer, '&undolevels', l:levels)  " a setting ends the undo step of what was typed before
  call appendbufline(l:buffer, l:from + l:replaced - 1, l:changed)
  if l:replaced > 0
    silent call deletebufline(l:buffer, l:from, l:from + l:replaced - 1)
  endif
  call setbufvar(l:buffer, '&undolevels', l:levels)
  redraw
  echo 'specchat: ' . (empty(a:edit.reason) ? a:edit.instruction . ': done' : a:edit.reason)
endfunction

function! s:Warn(text) abort
  redraw
  echohl WarningMsg
  echomsg 'specchat: ' . a:text
  echohl None
endfunction
