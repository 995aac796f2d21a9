# SPDX-License-Identifier: Apache-2.0
# Runs one fuzz target: -DTARGET= -DNAME= -DINPUTS= -DFOUND= -DSECONDS= -P run.cmake
file(MAKE_DIRECTORY ${FOUND}/${NAME} ${INPUTS}/${NAME})
set(dictionary)
if(EXISTS ${INPUTS}/${NAME}.dict)
  set(dictionary -dict=${INPUTS}/${NAME}.dict)
endif()
execute_process(
  COMMAND ${TARGET} -max_total_time=${SECONDS} -timeout=20 -rss_limit_mb=4096 -max_len=32768
          -print_final_stats=1 -artifact_prefix=${FOUND}/${NAME}/ ${dictionary} ${FOUND}/${NAME}
          ${INPUTS}/${NAME}
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX MATCH "stat::number_of_executed_units: *[0-9]+" executed "${output}")
string(LENGTH "${output}" length)
if(NOT status EQUAL 0)
  if(length GREATER 8000)
    math(EXPR from "${length} - 8000")
    string(SUBSTRING "${output}" ${from} -1 output)
  endif()
  message(FATAL_ERROR "${output}\nfuzz target ${NAME} failed (${status})")
endif()
message(STATUS "${NAME} ${executed}")
