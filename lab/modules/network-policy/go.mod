module gangplank/lab/network-policy

go 1.26.6
