module gangplank/lab/pause

go 1.26.6
