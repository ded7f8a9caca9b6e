"""Files that somebody made to do harm, or that came to harm: a law on everything that Seaway reads.

kinds     which files there are: how a good one is made, how it is opened, and what damaged ones may do
damage    what is done to a file: to its bytes, and to the values that its format holds
watching  what opening a file did beside reading it: imports, calls, files, processes, connections
opening   a process that opens drawn files one after another, and judges what came of each
hunting   starts that process, and knows which file it was at when it hung or died

`python -m tests.hostile --files 1000 [--seed S] [--kind K]` looks for files that break the law; `--file N` opens one
again, and keeps it.
"""
