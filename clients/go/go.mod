module larder.example/clients/go

go 1.24
