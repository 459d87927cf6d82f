module larder.example/clients/go/compare

go 1.25.0

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c
	github.com/redis/rueidis v1.0.79
	larder.example/clients/go v0.0.0
)

require golang.org/x/sys v0.47.0 // indirect

replace larder.example/clients/go => ../
