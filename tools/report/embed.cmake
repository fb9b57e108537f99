# Turns the files of the report page into a C source of byte arrays:
#   cmake -DOUT=assets.c -DHTML=page.html -DCSS=page.css "-DJS=a.js,b.js" -P embed.cmake
# JS files become one script, in the order in which they are named.
function(add_array name)
  set(hex "")
  foreach(file ${ARGN})
    file(READ ${file} piece HEX)
    string(APPEND hex "${piece}")
  endforeach()
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  file(APPEND ${OUT} "static const unsigned char ${name}_bytes[] = {\n${hex}\n};\n"
                     "const struct cli_rep_asset ${name} = {${name}_bytes, sizeof ${name}_bytes};\n\n")
endfunction()

string(REPLACE "," ";" JS "${JS}")
file(WRITE ${OUT} "/* Made from tools/report/ by embed.cmake. */\n#include \"tools/trace_report_assets.h\"\n\n")
add_array(cli_rep_html ${HTML})
add_array(cli_rep_css ${CSS})
add_array(cli_rep_js ${JS})
