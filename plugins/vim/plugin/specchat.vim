" Rewrite a range with specchat, in the background.
"
"   :'<,'>Specchat add type hints
"   :Specchat rename `width` to `breadth`      the whole buffer
"   :SpecchatStop                              end it, the text stays as it is

if exists('g:loaded_specchat')
  finish
endif
let g:loaded_specchat = 1

command! -range=% -nargs=+ Specchat call specchat#Edit(<line1>, <line2>, <q-args>)
command! SpecchatStop call specchat#Stop()
